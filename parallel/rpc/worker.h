#pragma once
/// @file
/// A worker of remote calls: a passive rank, which does what rank 0, the master, tells it.

#include "parallel/comm/communicator.h"
#include "parallel/rpc/remote_table.h"

namespace stagecoach::rpc {

/// Does the commands of rank 0 in the order in which they come, until the master shuts the worker down. A command that
/// throws does not end the worker: its error takes the place of its result, and of all that is computed from it, until
/// someone asks for a value. Collective over `comm`; `timeout` is that of the world, in seconds. Throws CommError if a
/// rank has failed, or if one that this worker waits for has been silent for longer than the timeout.
void serve_master(const RemoteTable& table, Communicator& comm, double timeout);

}  // namespace stagecoach::rpc
