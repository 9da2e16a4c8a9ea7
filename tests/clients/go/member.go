package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type membership struct {
	BootstrapServers string `json:"bootstrap_servers"`
	Group            string `json:"group"`
	Topic            string `json:"topic"`
}

// member is a member of a classic group under the tests' contract (tests/clients/programs/group_member.py): a line
// [partition, first offset, last offset] for what each poll brought, which is committed behind it, until SIGTERM.
func member(settings string) error {
	var given membership
	if err := json.Unmarshal([]byte(settings), &given); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(given.BootstrapServers),
		kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Topic),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		fetches := consumer.PollRecords(ctx, 200)
		fetches.EachError(func(topic string, partition int32, err error) {
			if ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, topic, partition, err)
			}
		})
		fetches.EachPartition(func(one kgo.FetchTopicPartition) {
			if count := len(one.Records); count > 0 {
				fmt.Printf("[%d, %d, %d]\n", one.Partition, one.Records[0].Offset, one.Records[count-1].Offset)
			}
		})
		if !fetches.Empty() {
			// a rebalance may have come between: who has the partition next reads it again
			if err := consumer.CommitRecords(ctx, fetches.Records()...); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		consumer.AllowRebalance()
	}
	consumer.CloseAllowingRebalance()
	return nil
}
