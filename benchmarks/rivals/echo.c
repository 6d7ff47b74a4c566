/* The least a server can do: one epoll loop that sends back what it receives. Argument: the port, on 127.0.0.1. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_SIZE = 1 << 18, EVENTS = 256 };

static void watch(int poll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
}

static int listener(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 1024)) exit(1);
    return fd;
}

/* The sockets block: a peer that does not read stops the server, which a load generator never lets happen. */
static void echo(int fd, char *buffer) {
    ssize_t size = recv(fd, buffer, READ_SIZE, 0), sent = 0;
    while (size > 0 && sent < size) {
        ssize_t n = send(fd, buffer + sent, (size_t)(size - sent), MSG_NOSIGNAL);
        if (n < 0) break;
        sent += n;
    }
    if (size <= 0 || sent < size) close(fd);
}

int main(int count, char **arguments) {
    static char buffer[READ_SIZE];
    struct epoll_event events[EVENTS];
    int poll = epoll_create1(0), server = listener(count > 1 ? atoi(arguments[1]) : 0), on = 1;
    watch(poll, server);
    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd != server) {
                echo(fd, buffer);
            } else if ((fd = accept(server, NULL, NULL)) >= 0) {
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                watch(poll, fd);
            }
        }
    }
}
