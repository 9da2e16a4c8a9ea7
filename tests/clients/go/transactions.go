package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 90 * time.Second

type command struct {
	Do               string   `json:"do"`
	Instance         string   `json:"instance"`
	TransactionalID  string   `json:"transactional_id"`
	TimeoutMs        int      `json:"timeout_ms"`
	RequestTimeoutMs int      `json:"request_timeout_ms"`
	Topic            string   `json:"topic"`
	Partition        int32    `json:"partition"`
	Partitions       int32    `json:"partitions"`
	Values           []string `json:"values"`
	Last             string   `json:"last"`
}

type commandAnswer struct {
	Error  string     `json:"error,omitempty"`
	Values [][]string `json:"values,omitempty"`
}

type transactionsProgram struct {
	servers   string
	producers map[string]*kgo.Client
}

// transactions executes commands under the contract of tests/clients/transactions.py.
func transactions(servers string) {
	program := transactionsProgram{servers, map[string]*kgo.Client{}}
	input := json.NewDecoder(bufio.NewReader(os.Stdin))
	output := json.NewEncoder(os.Stdout)
	for {
		var given command
		if err := input.Decode(&given); err != nil {
			return
		}
		var result commandAnswer
		var err error
		if result.Values, err = program.execute(given); err != nil {
			result.Error = fmt.Sprintf("%T: %v", err, err)
		}
		if err := output.Encode(result); err != nil {
			return
		}
	}
}

func (p *transactionsProgram) execute(given command) ([][]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	producer := p.producers[given.Instance]
	switch given.Do {
	case "open":
		return nil, p.open(ctx, given)
	case "begin":
		return nil, producer.BeginTransaction()
	case "write":
		records := []*kgo.Record{}
		for _, value := range given.Values {
			records = append(records, &kgo.Record{Topic: given.Topic, Partition: given.Partition, Value: []byte(value)})
		}
		return nil, producer.ProduceSync(ctx, records...).FirstErr()
	case "commit":
		return nil, producer.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return nil, producer.EndTransaction(ctx, kgo.TryAbort)
	case "close":
		delete(p.producers, given.Instance)
		return nil, nil
	case "read":
		return p.readCommitted(ctx, given)
	}
	return nil, errors.New(given.Do)
}

func (p *transactionsProgram) open(ctx context.Context, given command) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(p.servers),
		kgo.TransactionalID(given.TransactionalID),
		kgo.TransactionTimeout(time.Duration(given.TimeoutMs)*time.Millisecond),
		kgo.RequestTimeoutOverhead(time.Duration(given.RequestTimeoutMs)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	p.producers[given.Instance] = client
	_, _, err = client.ProducerID(ctx) // which fences other instances
	return err
}

func (p *transactionsProgram) readCommitted(ctx context.Context, given command) ([][]string, error) {
	offsets := map[int32]kgo.Offset{}
	values := make([][]string, given.Partitions)
	for number := range given.Partitions {
		offsets[number] = kgo.NewOffset().AtStart()
		values[number] = []string{}
	}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(p.servers),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{given.Topic: offsets}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(20*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	for left := given.Partitions; left > 0; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			if string(record.Value) == given.Last {
				left--
			} else {
				values[record.Partition] = append(values[record.Partition], string(record.Value))
			}
		}
	}
	return values, nil
}
