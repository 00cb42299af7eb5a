-- One block of a producer's lines ($2) to stream $1; $5 is its token.
select written, repeated, refused, reasons from jeet.publish_lines($1, $2, $3, $4, $5)
