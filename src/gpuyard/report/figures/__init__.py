"""Charts of a study, a plan and a comparison of costs: pure functions from a result to an ECharts option."""
