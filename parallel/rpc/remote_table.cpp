#include "parallel/rpc/remote_table.h"

#include "core/base/phrases.h"

namespace stagecoach {
namespace rpc {
namespace {

constexpr const char* kKinds[] = {"nothing",  "a bool", "an integer",  "a number", "a text",
                                  "a tensor", "a list", "a reference", "an error", "an object"};
static_assert(std::size(kKinds) == std::variant_size_v<Value>);

}  // namespace

std::string kind_of(const Value& value) {
  const auto* object = std::get_if<Object>(&value);
  return object == nullptr ? kKinds[value.index()] : fmt::format("an object of class '{}'", object->type->name);
}

void refuse(const Value& value, int argument, const char* expected) {
  throw Error(fmt::format("{}: expected {}, got {}",
                          argument == 0 ? "the result" : fmt::format("argument {}", argument), expected,
                          kind_of(value)));
}

void require_arguments(const Call& call, std::size_t count) {
  STAGECOACH_CHECK(call.arguments.size() == count, "expected {}, got {}",
                   counted(static_cast<std::int64_t>(count), "argument"), call.arguments.size());
}

}  // namespace rpc

void RemoteTable::add(const std::string& name, rpc::Callable callable) {
  STAGECOACH_CHECK(callables_.emplace(name, std::move(callable)).second,
                   "table of remote calls: '{}' is there already; choose another name", name);
}

}  // namespace stagecoach
