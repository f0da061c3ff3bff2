// Command picker is the endpoint picker of the suite, `lwepp`, with answers that Envoy accepts. That of v1.6.0 breaks requests
// and responses with bodies (gateway-api-inference-extension #3028 and #3033). The picker of a release with both fixes replaces it.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/common"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/lwepp/datastore"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/lwepp/handlers"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/lwepp/server"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// run starts the published parts, and this program's server in the place of the published one.
func run() error {
	logging := zap.Options{Development: true}
	logging.BindFlags(flag.CommandLine)
	pflag.CommandLine.AddGoFlagSet(flag.CommandLine)
	options := server.NewOptions()
	options.AddFlags(pflag.CommandLine)
	pflag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))

	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	pool := common.GKNN{
		NamespacedName: types.NamespacedName{Name: options.PoolName, Namespace: options.PoolNamespace},
		GroupKind:      schema.GroupKind{Group: options.PoolGroup, Kind: "InferencePool"},
	}
	address := metrics.Options{BindAddress: fmt.Sprintf(":%d", options.MetricsPort)}
	manager, err := server.NewDefaultManager(server.NewControllerConfig(true), pool, config, address)
	if err != nil {
		return err
	}
	store := datastore.NewDatastore(ctx)
	runner := server.ExtProcServerRunner{GrpcHealthPort: options.GRPCHealthPort, GKNN: pool, Datastore: store}
	if err := runner.SetupWithManager(manager); err != nil {
		return err
	}
	failed := make(chan error, 3)
	go func() { failed <- runner.HealthServerRunnable(ctrl.Log).Start(ctx) }()
	go func() { failed <- serve(options.GRPCPort, store) }()
	go func() { failed <- manager.Start(ctx) }()
	return <-failed
}

// serve answers Envoy over TLS, with a certificate of its own as the published picker.
func serve(port int, store datastore.Datastore) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	options := tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}
	envoys := grpc.NewServer(grpc.Creds(credentials.NewTLS(&options)))
	extproc.RegisterExternalProcessorServer(envoys, service{handlers.NewStreamingServer(store)})
	return envoys.Serve(listener)
}

// selfSigned makes a certificate.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
