"""hush inside other libraries: `hush.integrations.huggingface`. Each is imported by name."""
