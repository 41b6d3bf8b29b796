// Empty does nothing: how long it takes is what starting any Go program costs.
package main

func main() {}
