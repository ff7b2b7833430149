"""Table 1 of the paper measured: what a type of layer costs, waits for and how far it sees."""
