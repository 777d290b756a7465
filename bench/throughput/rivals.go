//go:build rivals

package main

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "github.com/redpanda-data/benthos/v4/public/components/pure" // the mapping
	"github.com/redpanda-data/benthos/v4/public/service"
)

// rivals do the same job with the same guarantee, 64 messages at once. They are
// there for information.
func rivals() []engine { return []engine{watermillEngine(), benthosEngine()} }

const rivalWorkers = 64

// watermillEngine is a Watermill subscriber and publisher: it acks with
// confirmation and publishes with an id.
func watermillEngine() engine {
	return engine{"Watermill, 64 subscribers", func(j *job) (func() error, error) {
		logger := watermill.NopLogger{}
		opts := []client.Option{client.InProcessServer(j.e.GetServer())}
		pub, err := nats.NewPublisher(nats.PublisherConfig{
			NatsOptions: opts, JetStream: nats.JetStreamConfig{TrackMsgId: true},
		}, logger)
		if err != nil {
			return nil, err
		}
		sub, err := nats.NewSubscriber(nats.SubscriberConfig{
			NatsOptions: opts, SubscribersCount: rivalWorkers, QueueGroupPrefix: "watermill",
			Unmarshaler: numbered{}, JetStream: nats.JetStreamConfig{DurablePrefix: "watermill"},
		}, logger)
		if err != nil {
			return nil, errors.Join(err, pub.Close())
		}
		in, err := sub.Subscribe(j.ctx, inSubject)
		if err != nil {
			return nil, errors.Join(err, sub.Close(), pub.Close())
		}
		var workers sync.WaitGroup
		for range rivalWorkers {
			workers.Go(func() {
				for m := range in {
					if pub.Publish(outSubject, message.NewMessage(m.UUID, m.Payload)) != nil {
						m.Nack()
						continue
					}
					m.Ack()
				}
			})
		}
		return func() error {
			err := sub.Close()
			workers.Wait()
			return errors.Join(err, pub.Close())
		}, nil
	}}
}

// numbered takes a message's id from its place in the stream.
type numbered struct{ nats.NATSMarshaler }

func (n numbered) Unmarshal(m *client.Msg) (*message.Message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	return message.NewMessage("job."+strconv.FormatUint(meta.Sequence.Stream, 10), m.Data), nil
}

// benthosEngine is a Benthos stream with an input and an output for JetStream,
// and a mapping between them that changes nothing.
func benthosEngine() engine {
	return engine{"Benthos, 64 in flight", func(j *job) (func() error, error) {
		c, js, nc, err := nativeConsumer(j)
		if err != nil {
			return nil, err
		}
		env := service.NewEnvironment()
		err = errors.Join(
			env.RegisterInput("job", service.NewConfigSpec(), func(*service.ParsedConfig, *service.Resources) (service.Input, error) {
				return &benthosInput{consumer: c}, nil
			}),
			env.RegisterOutput("job", service.NewConfigSpec(), func(*service.ParsedConfig, *service.Resources) (service.Output, int, error) {
				return &benthosOutput{js: js}, rivalWorkers, nil
			}),
		)
		if err != nil {
			return nil, err
		}
		b := env.NewStreamBuilder()
		b.SetLogger(quiet)
		if err := b.SetYAML("http: { enabled: false }\ninput: { job: {} }\npipeline: { processors: [ { mapping: 'root = content()' } ] }\noutput: { job: {} }\n"); err != nil {
			return nil, err
		}
		stream, err := b.Build()
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(j.ctx)
		done := make(chan error, 1)
		go func() { done <- stream.Run(ctx) }()
		return func() error {
			cancel()
			err := <-done
			nc.Close()
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}, nil
	}}
}

type benthosInput struct {
	consumer jetstream.Consumer
	messages jetstream.MessagesContext
}

func (i *benthosInput) Connect(context.Context) (err error) {
	i.messages, err = i.consumer.Messages()
	return err
}

func (i *benthosInput) Read(ctx context.Context) (*service.Message, service.AckFunc, error) {
	m, err := i.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, nil, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, nil, err
	}
	msg := service.NewMessage(m.Data())
	msg.MetaSetMut("id", "job."+strconv.FormatUint(meta.Sequence.Stream, 10))
	return msg, func(ctx context.Context, err error) error {
		if err != nil {
			return m.Nak()
		}
		return m.DoubleAck(ctx)
	}, nil
}

func (i *benthosInput) Close(context.Context) error {
	i.messages.Stop()
	return nil
}

type benthosOutput struct{ js jetstream.JetStream }

func (o *benthosOutput) Connect(context.Context) error { return nil }

func (o *benthosOutput) Write(ctx context.Context, m *service.Message) error {
	data, err := m.AsBytes()
	if err != nil {
		return err
	}
	id, _ := m.MetaGet("id")
	_, err = o.js.PublishMsg(ctx, &client.Msg{Subject: outSubject, Data: data, Header: client.Header{client.MsgIdHdr: {id}}})
	return err
}

func (o *benthosOutput) Close(context.Context) error { return nil }
