"""What is done with a request beside answering it: origins, repetition, logging."""
