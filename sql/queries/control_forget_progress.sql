select * from jeet_internal.forget_progress(%(function)s)
