// Command records is franz-go under the tests' contract (tests/clients/contract.py): `records write|read`;
// `records member SETTINGS`, see member.go; `records sasl ...`, see sasl.go; and `records transactions BOOTSTRAP_SERVERS`, see transactions.go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type settings struct {
	BootstrapServers string `json:"bootstrap_servers"`
	Idempotence      bool   `json:"idempotence"`
	LingerMs         int    `json:"linger_ms"`
	BatchBytes       int32  `json:"batch_bytes"`
	InFlight         int    `json:"in_flight"`
	TimeoutS         int    `json:"timeout_s"`
}

// A header is a pair on the line: its key, and its value in base64 or null.
type header [2]any

type record struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Codec     string   `json:"codec,omitempty"`
}

type acknowledgement struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

type span struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
}

type topicPartition struct {
	topic     string
	partition int32
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	if os.Args[1] == "member" {
		if err := member(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Args[1] == "sasl" {
		given := append(os.Args[2:], "")
		if err := login(given[0], given[1], given[2], given[3], given[4], given[5]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Args[1] == "transactions" {
		transactions(os.Args[2])
		return
	}
	modes := map[string]func(context.Context, settings, *json.Decoder, *json.Encoder) error{"write": write, "read": read}
	input := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	buffer := bufio.NewWriterSize(os.Stdout, 1<<20)
	var given settings
	err := input.Decode(&given)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(given.TimeoutS)*time.Second)
		defer cancel()
		err = modes[os.Args[1]](ctx, given, input, json.NewEncoder(buffer))
	}
	if err == nil {
		err = buffer.Flush()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(ctx context.Context, given settings, input *json.Decoder, output *json.Encoder) error {
	producers := map[string]*kgo.Client{}
	var sent []*kgo.Record
	failures := make(chan error, 1)
	for {
		var line record
		if err := input.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		producer, known := producers[line.Codec]
		if !known {
			var err error
			if producer, err = newProducer(given, line.Codec); err != nil {
				return err
			}
			defer producer.Close()
			producers[line.Codec] = producer
		}
		message := &kgo.Record{Topic: line.Topic, Partition: line.Partition, Key: line.Key, Value: line.Value}
		if line.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*line.Timestamp)
		}
		for _, pair := range line.Headers {
			value, err := headerValue(pair)
			if err != nil {
				return err
			}
			message.Headers = append(message.Headers, kgo.RecordHeader{Key: pair[0].(string), Value: value})
		}
		sent = append(sent, message)
		producer.Produce(ctx, message, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failures <- err:
				default: // the first one is told
				}
			}
		})
	}
	for _, producer := range producers {
		if err := producer.Flush(ctx); err != nil {
			return err
		}
	}
	select {
	case err := <-failures:
		return err
	default:
	}
	for _, message := range sent {
		if err := output.Encode(acknowledgement{message.Topic, message.Partition, message.Offset}); err != nil {
			return err
		}
	}
	return nil
}

func newProducer(given settings, codec string) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(given.BootstrapServers),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.ProducerLinger(time.Duration(given.LingerMs) * time.Millisecond),
		kgo.ProducerBatchMaxBytes(given.BatchBytes),
		kgo.MaxBufferedRecords(50_000),
		kgo.RequiredAcks(kgo.AllISRAcks()),
	}
	if !given.Idempotence {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(given.InFlight))
	}
	return kgo.NewClient(options...)
}

func headerValue(pair header) ([]byte, error) {
	if pair[1] == nil {
		return nil, nil
	}
	value := []byte{}
	quoted, err := json.Marshal(pair[1])
	if err != nil {
		return nil, err
	}
	return value, json.Unmarshal(quoted, &value)
}

func read(ctx context.Context, given settings, input *json.Decoder, output *json.Encoder) error {
	ends := map[topicPartition]int64{}
	unread := 0
	assignment := map[string]map[int32]kgo.Offset{}
	for {
		var line span
		if err := input.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if assignment[line.Topic] == nil {
			assignment[line.Topic] = map[int32]kgo.Offset{}
		}
		assignment[line.Topic][line.Partition] = kgo.NewOffset().At(line.Start)
		ends[topicPartition{line.Topic, line.Partition}] = line.End
		if line.Start < line.End {
			unread++
		}
	}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(given.BootstrapServers),
		kgo.ConsumePartitions(assignment),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(20*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for unread > 0 {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, message := range fetches.Records() {
			end := ends[topicPartition{message.Topic, message.Partition}]
			if message.Offset >= end {
				continue
			}
			if message.Offset == end-1 {
				unread--
			}
			timestamp := message.Timestamp.UnixMilli()
			line := record{
				Topic: message.Topic, Partition: message.Partition, Offset: message.Offset, Timestamp: &timestamp,
				Key: message.Key, Value: message.Value, Headers: []header{},
			}
			for _, each := range message.Headers {
				line.Headers = append(line.Headers, header{each.Key, each.Value})
			}
			if err := output.Encode(line); err != nil {
				return err
			}
		}
	}
	return nil
}
