"""What a run of parsing has on its page that one of translation has not: scores of trees."""
