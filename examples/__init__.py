"""Programs that use a running deployment. The documentation shows them and the tests run them."""
