"""The SDK: `Client` and `AsyncClient`. Needs grpcio and protobuf only."""
