#include "core/cuda/check.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "core/base/error.h"

namespace stagecoach::cuda {
namespace {

/// Returns a name such as "stagecoach::cuda::sum_rows<float>", without return type and arguments.
std::string readable(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  std::string text = status == 0 ? name.get() : mangled;
  if (text.rfind("void ", 0) == 0) {
    text.erase(0, 5);  // names of templates include the return type, void
  }
  return text.substr(0, text.find('('));
}

std::string kernel_name(const void* kernel) {
  const char* name = nullptr;
  if (cudaFuncGetName(&name, kernel) != cudaSuccess || name == nullptr) {
    cudaGetLastError();
    return "of unknown name";
  }
  return readable(name);
}

std::string text_of(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

}  // namespace

void call_failed(cudaError_t error, const char* call, const char* file, int line) {
  cudaGetLastError();  // so that the next call does not report it again
  throw Error(fmt::format("{}: {} [{}:{}]", call, text_of(error), short_path(file), line));
}

void launch_failed(cudaError_t error, const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes) {
  cudaGetLastError();
  throw Error(fmt::format("kernel {}: {}; grid {} x {} x {}, block {} x {} x {}, {} bytes of shared memory",
                          kernel_name(kernel), text_of(error), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                          shared_bytes));
}

void thrust_failed(const char* what) {
  cudaGetLastError();
  throw Error(fmt::format("Thrust: {}", what));
}

}  // namespace stagecoach::cuda
