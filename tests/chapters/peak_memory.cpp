// peak_memory FILE PROGRAM [ARGUMENTS…]: runs a program and leaves its peak resident memory in FILE, or in FILE.RANK
// where Open MPI's mpirun started it: KiB, as the kernel has counted them.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: peak_memory FILE PROGRAM [ARGUMENTS]\n");
    return 2;
  }
  const pid_t process = ::fork();
  if (process == 0) {
    ::execv(argv[2], argv + 2);
    std::perror(argv[2]);
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  if (process < 0 || ::wait4(process, &status, 0, &usage) != process) {
    std::perror("peak_memory");
    return 1;
  }
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::ofstream(std::string(argv[1]) + (rank == nullptr ? "" : std::string(".") + rank)) << usage.ru_maxrss << "\n";
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
