//! The CNI plugin and its node agent: interception without privileges in the pod.
