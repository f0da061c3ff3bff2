// Package inference pins the conformance suite of the Gateway API Inference Extension, which is built unchanged, and the
// modules of the endpoint picker of its pods.
package inference

import (
	_ "sigs.k8s.io/gateway-api-inference-extension/conformance"
)
