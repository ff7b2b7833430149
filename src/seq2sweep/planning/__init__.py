"""`seq2sweep plan`: what the pipeline will run, need, take and cost, before anything is done."""
