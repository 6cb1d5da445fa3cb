-- name: jobs_of_dates
-- Final state of the jobs of these dates, for `--include dead`. Index: jobs_occurrence.
select distinct on (j.logical_date) j.logical_date, j.status
from sched.jobs j
where j.schedule_id = %(id)s::integer and j.logical_date > %(after)s::timestamptz
  and j.logical_date <= %(until)s::timestamptz
order by j.logical_date, j.generation desc;
