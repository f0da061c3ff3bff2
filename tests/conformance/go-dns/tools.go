// Package dns pins the DNS server that a pod of the conformance suite runs.
package dns
