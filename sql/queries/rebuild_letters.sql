select jeet_internal.letters_in_the_way(%(function)s) as open
