// Command sarama runs transactions with sarama under the contract of tests/clients/transactions.py: `sarama BOOTSTRAP_SERVERS`;
// or logs in: `sarama login ...`, see login.go.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"
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
	Group            string   `json:"group"`
	Offset           int64    `json:"offset"`
	Last             string   `json:"last"`
}

type answer struct {
	Error  string     `json:"error,omitempty"`
	Values [][]string `json:"values,omitempty"`
}

type program struct {
	servers   []string
	producers map[string]sarama.SyncProducer
}

func main() {
	sarama.Logger = log.New(io.Discard, "", 0)
	if os.Args[1] == "login" {
		given := os.Args[2:]
		if err := login(given[0], given[1], given[2], given[3], given[4], given[5]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	run := program{[]string{os.Args[1]}, map[string]sarama.SyncProducer{}}
	input := json.NewDecoder(bufio.NewReader(os.Stdin))
	output := json.NewEncoder(os.Stdout)
	for {
		var given command
		if err := input.Decode(&given); err != nil {
			return
		}
		var result answer
		var err error
		if result.Values, err = run.execute(given); err != nil {
			result.Error = fmt.Sprintf("%T: %v", err, err)
		}
		if err := output.Encode(result); err != nil {
			return
		}
	}
}

func (p *program) execute(given command) ([][]string, error) {
	producer := p.producers[given.Instance]
	switch given.Do {
	case "open":
		return nil, p.open(given)
	case "begin":
		return nil, producer.BeginTxn()
	case "write":
		for _, value := range given.Values {
			message := &sarama.ProducerMessage{Topic: given.Topic, Partition: given.Partition, Value: sarama.StringEncoder(value)}
			if _, _, err := producer.SendMessage(message); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "offsets":
		offset := &sarama.PartitionOffsetMetadata{Partition: given.Partition, Offset: given.Offset}
		return nil, producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{given.Topic: {offset}}, given.Group)
	case "commit":
		return nil, producer.CommitTxn()
	case "abort":
		return nil, producer.AbortTxn()
	case "close":
		delete(p.producers, given.Instance)
		return nil, nil
	case "read":
		return p.read(given)
	}
	return nil, errors.New(given.Do)
}

func (p *program) open(given command) error {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = given.TransactionalID
	config.Producer.Transaction.Timeout = time.Duration(given.TimeoutMs) * time.Millisecond
	config.Producer.Transaction.Retry.Max = 1000
	config.Producer.Retry.Max = 1000
	config.Net.MaxOpenRequests = 1
	config.Net.ReadTimeout = time.Duration(given.RequestTimeoutMs) * time.Millisecond
	producer, err := sarama.NewSyncProducer(p.servers, config)
	if err == nil {
		p.producers[given.Instance] = producer
	}
	return err
}

func (p *program) read(given command) ([][]string, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.MaxWaitTime = 20 * time.Millisecond
	consumer, err := sarama.NewConsumer(p.servers, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	deadline := time.After(patience)
	values := make([][]string, given.Partitions)
	for number := range given.Partitions {
		values[number] = []string{}
		partition, err := consumer.ConsumePartition(given.Topic, number, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		defer partition.AsyncClose()
		for complete := false; !complete; {
			select {
			case message := <-partition.Messages():
				if complete = string(message.Value) == given.Last; !complete {
					values[number] = append(values[number], string(message.Value))
				}
			case <-deadline:
				return nil, fmt.Errorf("not read to the end: %v", values)
			}
		}
	}
	return values, nil
}
