"""For tests of stores, and of programs that use holdfast."""
