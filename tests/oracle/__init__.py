"""The DST rule a second time, as simply as it can be said, to judge the product by. Imports nothing of the product."""
