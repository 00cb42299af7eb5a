-- What is wrong now, as far as the schema and the server know it: one view a rule in sql/rules. A row is a fact that was just
-- looked up, with its evidence; an empty view means that none of the rules found anything, not that all is well.
create or replace view jeet.diagnosis as
select f.observation, f.likely_cause, f.evidence, f.action, f.since, f.rule, f.figures
  from jeet_internal.findings() f;

comment on view jeet.diagnosis is 'What is wrong now, with cause, evidence and remedy, the worst first; empty when no rule found anything. Sessions of other users are seen only as far as the owner of the schema may see them';
comment on column jeet.diagnosis.observation is 'what was found';
comment on column jeet.diagnosis.likely_cause is 'why that usually happens';
comment on column jeet.diagnosis.evidence is 'the figures it rests on';
comment on column jeet.diagnosis.action is 'what to do';
comment on column jeet.diagnosis.since is 'since when, if that is known';
comment on column jeet.diagnosis.rule is 'the rule that found it: docs/diagnosis.md lists them with their thresholds';
comment on column jeet.diagnosis.figures is 'the same figures, to compute with';
