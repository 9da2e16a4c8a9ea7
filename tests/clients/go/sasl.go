package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// login writes a record as a user and reads it back: `records sasl SERVERS MECHANISM USER PASSWORD TOPIC [CA]`. With the
// certificate of an authority, it uses TLS.
func login(servers, mechanism, user, password, topic, ca string) error {
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: user, Pass: password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: user, Pass: password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: user, Pass: password}.AsSha512Mechanism(),
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(servers),
		kgo.SASL(mechanisms[mechanism]),
		kgo.DefaultProduceTopic(topic),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RetryTimeout(20 * time.Second),
	}
	if ca != "" {
		certificate, err := os.ReadFile(ca)
		if err != nil {
			return err
		}
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(certificate)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord(mechanism)).FirstErr(); err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if string(record.Value) == mechanism {
				fmt.Println("read", mechanism)
				return nil
			}
		}
	}
}
