#include "parallel/rpc/message.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>

namespace stagecoach::rpc {
namespace {

// Messages of one tag arrive in the order in which they were sent.
enum Tag : int { kCommands, kValues };

struct CommandHeader {
  Task task;
  std::int32_t peer;
  std::int64_t needs_input_grad;
  Id result;
  Id of;
  Id context;
  std::int64_t name_length;
  std::int64_t argument_count;
};

enum class Content : std::int32_t { nothing, tensor, error };

struct ValueHeader {
  Content content;
  DType dtype;
  std::int32_t dims;
  std::int64_t extents[Shape::kMaxDims];
};

/// Returns the bytes of `count` structures as a tensor uint8 [n], for sending.
template <class T>
Tensor bytes_of(const T* values, std::size_t count, Device device) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values);
  return Tensor::from(std::span(bytes, count * sizeof(T)), {static_cast<std::int64_t>(count * sizeof(T))}, device);
}

/// Receives `count` structures.
template <class T>
std::vector<T> receive(Communicator& comm, std::int64_t count, int from, int tag) {
  std::vector<T> values(static_cast<std::size_t>(count));
  if (count > 0) {
    const auto size = count * static_cast<std::int64_t>(sizeof(T));
    const auto bytes = comm.receive({size}, DType::uint8, from, tag).to_vector<std::uint8_t>();
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return values;
}

}  // namespace

Tensor tensor_of(const std::string& text, Device device) { return bytes_of(text.data(), text.size(), device); }

std::string text_of(const Tensor& bytes) {
  const auto values = bytes.to_vector<std::uint8_t>();
  return {values.begin(), values.end()};
}

void Outbox::send(const Tensor& tensor, int to, int tag) {
  while (!sends_.empty() && sends_.front().completed()) {
    sends_.pop_front();
  }
  sends_.push_back(comm_.send_async(tensor, to, tag));
}

void Outbox::send(const Command& command, int to) {
  const CommandHeader header{command.task,
                             command.peer,
                             command.needs_input_grad ? 1 : 0,
                             command.result,
                             command.of,
                             command.context,
                             static_cast<std::int64_t>(command.name.size()),
                             static_cast<std::int64_t>(command.arguments.size())};
  send(bytes_of(&header, 1, comm_.device()), to, kCommands);
  if (!command.name.empty()) {
    send(tensor_of(command.name, comm_.device()), to, kCommands);
  }
  if (!command.arguments.empty()) {
    send(bytes_of(command.arguments.data(), command.arguments.size(), comm_.device()), to, kCommands);
  }
}

void Outbox::send(const Value& value, int to) {
  const Tensor payload = value.error.empty() ? value.tensor : tensor_of(value.error, comm_.device());
  ValueHeader header{};
  if (payload.defined()) {
    header.content = value.error.empty() ? Content::tensor : Content::error;
    header.dtype = payload.dtype();
    header.dims = payload.dims();
    std::copy(payload.shape().begin(), payload.shape().end(), header.extents);
  }
  send(bytes_of(&header, 1, comm_.device()), to, kValues);
  if (payload.defined()) {
    send(payload, to, kValues);
  }
}

void Outbox::wait_for_first() {
  sends_.front().wait();
  sends_.pop_front();
}

void Outbox::wait() {
  while (!sends_.empty()) {
    wait_for_first();
  }
}

Command receive_command(Communicator& comm, int from) {
  const CommandHeader header = receive<CommandHeader>(comm, 1, from, kCommands)[0];
  const auto name = receive<char>(comm, header.name_length, from, kCommands);
  return {.task = header.task,
          .result = header.result,
          .of = header.of,
          .context = header.context,
          .peer = header.peer,
          .needs_input_grad = header.needs_input_grad != 0,
          .name = {name.begin(), name.end()},
          .arguments = receive<Id>(comm, header.argument_count, from, kCommands)};
}

Value receive_value(Communicator& comm, int from) {
  const ValueHeader header = receive<ValueHeader>(comm, 1, from, kValues)[0];
  if (header.content == Content::nothing) {
    return {};
  }
  const Tensor payload = comm.receive(Shape(header.extents, header.dims), header.dtype, from, kValues);
  return header.content == Content::tensor ? Value{.tensor = payload} : Value{.error = text_of(payload)};
}

}  // namespace stagecoach::rpc
