-- The functions that read several streams at once plan once, as those that append do. What they look up they find by an index,
-- whatever the arguments: they may not use anything else.
ALTER FUNCTION replay_many(text[], bigint[], bigint) SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION high_waters(text[]) SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION identities(text[], bigint[]) SET plan_cache_mode = force_generic_plan;
