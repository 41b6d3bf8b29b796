# The image for all roles, as `make image` builds it without a container engine.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS=linux TARGETARCH VERSION=development
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -tags=urfave_cli_no_docs \
      -ldflags "-s -w -X main.version=$VERSION" -o /image/whereabouts . \
 && for role in install reconcile controller ip-control kubectl-whereabouts \
      ip-control-loop ip-reconciler node-slice-controller; do ln -s whereabouts /image/$role; done

FROM scratch
COPY --from=build /image/ /
USER 65532:65532
ENV PATH=/
ENTRYPOINT ["/whereabouts"]
CMD ["help"]
