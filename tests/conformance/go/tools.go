// Package conformance pins the conformance suite of the Gateway API. The suite and the programs that its pods run are
// built unchanged.
package conformance

import (
	_ "sigs.k8s.io/gateway-api/conformance"
)
