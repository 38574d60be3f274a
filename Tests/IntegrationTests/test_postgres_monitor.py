"""A monitor's story on PostgreSQL. The last test verifies the log."""

from functools import partial

from monitor_world import MonitorWorld
from test_monitor_flows import (phone, printer, test_register_a_device, test_a_device_watches_one_printer, test_settings, test_changes_of_state,
                                test_a_print_from_start_to_end, test_milestones_are_pushed_once_a_run, test_an_event_with_an_id_happens_once,
                                test_many_devices_on_one_printer, test_unregister, test_the_drill_counts_what_opens_for_a_printer,
                                test_the_log_verifies)

make_world = partial(MonitorWorld, postgres=True)
