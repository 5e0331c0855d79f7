#pragma once
/// @file
/// Signals: the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 (which launchers of many processes pass on, and send before a
/// job's time is over) asks the program to save and stop; one that comes more than a second later ends it at once.

namespace stagecoach {

/// From now on these signals are noted instead of ending the program.
void catch_interrupts();
/// True once one came.
bool interrupted();

/// From now on a program whose standard output nobody reads any more (`| head -1`, a viewer that was closed) is not
/// ended by SIGPIPE; its writes fail instead.
void ignore_broken_pipes();

}  // namespace stagecoach
