package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// A conversation is the client's side of SCRAM, which sarama leaves to its users.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

// login writes a record as a user over TLS and reads it back: `sarama login SERVERS CA MECHANISM USER PASSWORD TOPIC`.
func login(servers, ca, mechanism, user, password, topic string) error {
	hashes := map[string]scram.HashGeneratorFcn{"SCRAM-SHA-256": scram.SHA256, "SCRAM-SHA-512": scram.SHA512}
	certificate, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(certificate)
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: authorities}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = user, password
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		return &conversation{hash: hashes[mechanism]}
	}
	config.Metadata.Retry.Max = 0
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	client, err := sarama.NewClient([]string{servers}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(mechanism)}
	number, offset, err := producer.SendMessage(message)
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	partition, err := consumer.ConsumePartition(topic, number, offset)
	if err != nil {
		return err
	}
	select {
	case read := <-partition.Messages():
		fmt.Println("read", string(read.Value))
		return partition.Close()
	case <-time.After(patience):
		return fmt.Errorf("no record within %v", patience)
	}
}
