-- The rules of the cluster, in the order in which the view gives them: the worst first.
select rule, observation, likely_cause, evidence, action, since, figures from jeet.diagnosis
