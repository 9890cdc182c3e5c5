"""From a Job to a Plan: rows, moments, verdict, time, the comparison and its faces."""
