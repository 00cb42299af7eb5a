select observation, likely_cause, evidence, action, since from jeet.diagnosis;
