-- Events as JSON texts ($2) to stream $1, with keys ($3) and ids ($4) or none.
select partition, "offset", error from jeet.publish_texts($1, $2, $3, $4) order by ord
