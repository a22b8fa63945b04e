"""Execute: correctness against float64 first, then replicated timing, each in processes of their own."""
