#!/bin/sh
# Runs all tests with the given pytest. Tests that failed beside the others then run once more, one at a time,
# up to the first that fails again: a busy machine must not hide a defect, nor look like one.
"$1" -n 4 --dist loadgroup
status=$?
[ "$status" -eq 1 ] || exit "$status"
# pytest-xdist adds the group to the names of failed tests; without it, pytest would not find them and run all tests
sed -i 's/@[a-z]*": true/": true/' .pytest_cache/v/cache/lastfailed
echo "Some tests failed. Each of them now runs once more, alone; one that fails again fails the whole run."
exec "$1" --last-failed --last-failed-no-failures none --exitfirst
