package main

import (
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/lwepp/handlers"
)

// service answers Envoy as the published picker does, through streams that put its answers right.
type service struct {
	published *handlers.StreamingServer
}

// Process serves one request.
func (s service) Process(envoy extproc.ExternalProcessor_ProcessServer) error {
	return s.published.Process(&stream{ExternalProcessor_ProcessServer: envoy})
}

// stream puts the answers for one request right. The picker of v1.6.0 answers for parts of the body before it answers for
// the headers, and without the bytes. Envoy requires the order of its messages, and the bytes: it drops what is left out.
type stream struct {
	extproc.ExternalProcessor_ProcessServer
	// headersAnswered says whether answers for the body may be sent.
	headersAnswered bool
	// request and response are the parts of the bodies that the picker has not answered for.
	request, response []*extproc.HttpBody
	// held are the answers that wait for that for the headers.
	held []*extproc.ProcessingResponse
}

// Recv keeps the parts of bodies.
func (s *stream) Recv() (*extproc.ProcessingRequest, error) {
	message, err := s.ExternalProcessor_ProcessServer.Recv()
	if err != nil {
		return message, err
	}
	switch part := message.Request.(type) {
	case *extproc.ProcessingRequest_RequestBody:
		s.request = append(s.request, part.RequestBody)
	case *extproc.ProcessingRequest_ResponseBody:
		s.response = append(s.response, part.ResponseBody)
	}
	return message, nil
}

// Send adds the parts of bodies to answers, and keeps the order.
func (s *stream) Send(answer *extproc.ProcessingResponse) error {
	switch kind := answer.Response.(type) {
	case *extproc.ProcessingResponse_RequestHeaders:
		s.headersAnswered = true
		waiting := append([]*extproc.ProcessingResponse{answer}, s.held...)
		s.held = nil
		for _, message := range waiting {
			if err := s.ExternalProcessor_ProcessServer.Send(message); err != nil {
				return err
			}
		}
		return nil
	case *extproc.ProcessingResponse_RequestBody:
		kind.RequestBody.Response.BodyMutation = next(&s.request)
		if !s.headersAnswered {
			s.held = append(s.held, answer)
			return nil
		}
	case *extproc.ProcessingResponse_ResponseBody:
		kind.ResponseBody.Response.BodyMutation = next(&s.response)
	}
	return s.ExternalProcessor_ProcessServer.Send(answer)
}

// next takes the first part of a body, as an answer has it.
func next(parts *[]*extproc.HttpBody) *extproc.BodyMutation {
	part := (*parts)[0]
	*parts = (*parts)[1:]
	return &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{
		StreamedResponse: &extproc.StreamedBodyResponse{Body: part.Body, EndOfStream: part.EndOfStream},
	}}
}
