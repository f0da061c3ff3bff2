//! Tests of the server: by frames, and with the HTTP library as client.

mod frames;
mod library;
mod life;
mod rules;
