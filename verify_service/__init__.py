"""The verify side: the target model, which decides every token."""
