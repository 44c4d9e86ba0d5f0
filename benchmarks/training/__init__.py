"""Training throughput and memory of CROSS-JEM, monoBERT and sentence-transformers' CrossEncoder on the same lists."""
