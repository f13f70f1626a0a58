"""Two models, or versions, compared by what people click: their answers interleaved, clicks counted by team."""
