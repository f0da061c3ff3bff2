// Package echo pins the programs that the pods of mesh tests run: a server, and a client that tests start in it.
package echo
