-- Whether some worker that takes tasks has the plugin $1.
select exists (select from jeet_internal.worker where status = 'running' and plugin_hash = $1)
