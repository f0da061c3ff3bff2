// A gRPC client or server for tests, driven over standard input and output, one JSON document a line:
//
//	probe serve NAME        says {"port": N} and answers every call with NAME, until its input ends
//	probe serve-xds NAME    the same by a server that asks a control plane for its listener; says {"serving": BOOL}, too
//	probe call TARGET       for each {"times": N, "headers": {...}, "timeout": SECONDS} on its input calls that often, one
//	                        call after another, and says {"answers": {NAME: N}, "errors": {CODE: N}, "detail": TEXT, "seconds": N}
//
// A call that cannot be made yet is an error; nothing waits for the channel to become ready. With a control plane, the
// credentials that it configures are used, and plaintext without any.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
)

const method = "/rutter.probe.Echo/Echo"

// bare leaves messages as they are: what is called has no schema.
type bare struct{}

func (bare) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (bare) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (bare) Name() string { return "proto" }

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("want serve, serve-xds or call, and a name or target"))
	}
	switch os.Args[1] {
	case "serve", "serve-xds":
		serve(os.Args[2], os.Args[1] == "serve-xds")
	case "call":
		call(os.Args[2])
	default:
		fail(fmt.Errorf("no such command: %s", os.Args[1]))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func say(document any) {
	text, err := json.Marshal(document)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(text))
}

func serve(name string, asks bool) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	say(map[string]any{"port": listener.Addr().(*net.TCPAddr).Port})
	answer := grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			return err
		}
		message = []byte(name)
		return stream.SendMsg(&message)
	})
	options := []grpc.ServerOption{answer, grpc.ForceServerCodec(bare{})}
	var server interface{ Serve(net.Listener) error }
	if asks {
		changed := xds.ServingModeCallback(func(_ net.Addr, mode xds.ServingModeChangeArgs) {
			say(map[string]any{"serving": mode.Mode == connectivity.ServingModeServing})
		})
		plaintext := xdscreds.ServerOptions{FallbackCreds: insecure.NewCredentials()}
		credentials, failed := xdscreds.NewServerCredentials(plaintext)
		if failed != nil {
			fail(failed)
		}
		server, err = xds.NewGRPCServer(append(options, changed, grpc.Creds(credentials))...)
		if err != nil {
			fail(err)
		}
	} else {
		server = grpc.NewServer(options...)
	}
	go func() {
		if err := server.Serve(listener); err != nil {
			fail(err)
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

type ask struct {
	Times   int               `json:"times"`
	Headers map[string]string `json:"headers"`
	Timeout float64           `json:"timeout"`
}

type told struct {
	Answers map[string]int `json:"answers"`
	Errors  map[string]int `json:"errors"`
	Detail  string         `json:"detail"`
	Seconds float64        `json:"seconds"`
}

func call(target string) {
	credentials, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		fail(err)
	}
	secured := grpc.WithTransportCredentials(credentials)
	client, err := grpc.NewClient(target, secured, grpc.WithDefaultCallOptions(grpc.ForceCodec(bare{})))
	if err != nil {
		fail(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		asked := ask{Timeout: 30}
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fail(err)
		}
		result := told{Answers: map[string]int{}, Errors: map[string]int{}}
		start := time.Now()
		for range asked.Times {
			limit := time.Duration(asked.Timeout * float64(time.Second))
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			ctx = metadata.NewOutgoingContext(ctx, metadata.New(asked.Headers))
			request, response := []byte{}, []byte{}
			if err := client.Invoke(ctx, method, &request, &response); err != nil {
				result.Errors[screaming(status.Code(err).String())]++
				result.Detail = status.Convert(err).Message()
			} else {
				result.Answers[string(response)]++
			}
			cancel()
		}
		result.Seconds = time.Since(start).Seconds()
		say(result)
	}
}

// screaming writes a code as other languages do: DeadlineExceeded is DEADLINE_EXCEEDED.
func screaming(code string) string {
	var out []rune
	for at, letter := range code {
		if at > 0 && letter >= 'A' && letter <= 'Z' {
			out = append(out, '_')
		}
		if letter >= 'a' && letter <= 'z' {
			letter -= 'a' - 'A'
		}
		out = append(out, letter)
	}
	return string(out)
}
