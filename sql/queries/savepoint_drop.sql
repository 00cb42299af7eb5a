update jeet_internal.savepoint set dropped = true where function_id = %(function)s and id = %(savepoint)s and not dropped
