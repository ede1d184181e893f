#!/bin/sh
# Prints degrees Fahrenheit for a whole number of degrees Celsius.
echo $(($1 * 9 / 5))
