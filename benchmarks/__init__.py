"""The measuring rigs. Speed is measured here only; results lie under docs/benchmarks."""
